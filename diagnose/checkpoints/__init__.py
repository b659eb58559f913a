"""Checkpoints of a training -> which of them are whole, which are good, and where to start again.

    hashes      bytes of a file -> its checksums, block by block
    manifest    checksums of all files of a checkpoint; written last, so it is the commit
    found       a folder -> the checkpoints in it, and who wrote them
    formats     what each of those writers leaves behind when it has finished
    archives    a file of torch.save -> whether its own checksums agree
    tensors     a file of safetensors -> whether its header fits its size
    plan        the .metadata of PyTorch DCP -> which bytes of which file belong together, without unpickling
    verify      a checkpoint -> whole, complete, unfinished or damaged, with reasons

None of these imports torch, and none of them runs what a checkpoint contains: checkpoints are hostile input.
"""

__all__ = ["found", "hashes", "manifest", "verify"]
