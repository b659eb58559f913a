"""The signals: their names, a sentence for each, and a weight for each before anything is fitted.

The weights in use are in ``rules/weights.json``. ``python -m benchmarks.fit`` fits them on labelled logs. It starts from the
numbers here, stays near them if the logs say little, and never changes a sign: a signal that speaks for a hypothesis cannot be
fitted to speak against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Signal:
    """Something that speaks for a hypothesis (positive weight) or against it."""

    name: str
    weight: float
    """what an engineer would give it"""
    says: str
    """completes the sentence 'It speaks for (or against) it that …'"""


SIGNALS: Final = (
    # What kind of statement it is.
    Signal("raised", 5.0, "an exception ended the process: nobody caught it"),
    Signal("shown", 3.0, "a traceback shows where it was raised"),
    Signal("unfinished", 3.5, "the log ends in the middle of a traceback"),
    Signal("fatal", 5.0, "a rule knows the line as the end of a process"),
    Signal("noted", 3.0, "a rule knows the line as an error"),
    Signal("warned", -1.0, "a rule knows the line as a warning, which mostly does no harm"),
    Signal("detected", 4.5, "the numbers of the job show it"),
    Signal("stood_still", 5.0, "the job had made no progress for long when it was ended"),
    Signal("dumped", 3.0, "somebody dumped the stacks, or the collectives, of processes that stood"),
    Signal("others_wait", 2.0, "the dumps show who waits, and for whom"),
    Signal("level_fatal", 2.5, "its logger calls it fatal"),
    Signal("level_error", 1.5, "its logger calls it an error"),
    Signal("exception_named", 1.5, "it names an exception"),
    Signal("exit_status", 1.5, "it states an exit status or a signal"),
    Signal("failure_words", 0.5, "it has words of failure"),
    Signal("grave_words", 1.5, "it has words of an end: killed, aborted, fatal"),
    Signal("plain_words", 1.0, "no rule knows it, but its words say plainly what failed"),
    Signal("vague_words", 0.3, "no rule knows it, but its words hint at what failed"),
    # Who says it, and how exactly.
    Signal("machine", 4.0, "a machine failed, which explains what programs say of it"),
    Signal("named_machine", 1.0, "it names what failed in the machine; others only say that a device did"),
    Signal("kernel", 0.5, "the kernel says it"),
    Signal("specific", 0.5, "a rule knows exactly this message"),
    Signal("came_to", 4.5, "the same machine failed for good soon after"),
    # Where it stands.
    Signal("first", 1.5, "it is the first failure that the job did not survive"),
    Signal("first_heard", 0.5, "it is the first that sounds like a failure"),
    Signal("last_words", 0.5, "it is among the last lines of its log"),
    Signal("loud_end", 2.0, "the log ends with it, and it sounds like an end"),
    Signal("scrap", 2.0, "the log holds little else, and no progress"),
    # What takes it back.
    Signal("survived", -12.0, "the job went on after it"),
    Signal("survived_like", -8.0, "the job went on after another of its kind"),
    Signal("talked_on", -8.0, "the program that printed it went on calmly"),
    Signal("well_again", -10.0, "a later line says that all is well again"),
    Signal("known_good", -12.0, "runs that went well print it too"),
    Signal("ignored", -6.0, "the program that printed it caught or ignored it"),
    Signal("worked_on", -2.5, "lines after it count up to the end of the log"),
    Signal("softened", -3.0, "the next line says that it goes on in another way"),
    Signal("logged", -0.5, "a logger printed it: the program was still in control"),
    Signal("soft_level", -1.5, "its logger calls it a warning"),
    Signal("info_level", -3.0, "its logger calls it information"),
    Signal("interpreter", -6.0, "it is an interpreter's warning"),
    Signal("listed", -2.5, "it names possibilities, not what happened"),
    Signal("hint", -1.5, "it is advice"),
    Signal("tidying", -2.5, "it is about tidying up, which mostly does no harm"),
    Signal("quoted", -1.5, "it quotes a program or a command"),
    Signal("went_on", -2.0, "a shell could not do a line, and the script went on"),
    Signal("echo", -3.5, "lines of its kind report a failure elsewhere"),
    Signal("nameless", -1.5, "it says that something ended, not why"),
    Signal("stop", -1.0, "somebody ended the job, perhaps because of another failure"),
    Signal("followed", -3.0, "much of the log comes after it"),
    Signal("repeated", -1.5, "the log says it often"),
    Signal("prose", -3.0, "it is a text for readers, or very many lines of the log have such words"),
    Signal("torn", -3.0, "other lines were written into it, or its message is missing"),
    # What other lines explain.
    Signal("by_cause", -2.0, "it is an echo, and the log has something that it may echo"),
    Signal("by_machine", -5.0, "a machine failed, which explains it"),
    Signal("by_stop", -5.0, "the process had been told to stop"),
    Signal("by_deeper", -3.5, "a layer below had failed just before"),
    Signal("by_earlier", -1.5, "an exception had ended a process before it"),
    Signal("by_failure", -4.5, "something had failed before the job was ended"),
    Signal("by_specific", -3.0, "the lines of its message say more exactly what failed"),
    Signal("by_crash", -5.0, "the process said what was wrong just before it crashed"),
    Signal("by_silence", -4.0, "the job had stood still before it was ended"),
    Signal("by_better", -2.0, "another line says the same better"),
    Signal("again", -2.5, "an earlier line says the same"),
    Signal("by_known", -3.0, "the log also has a line that a rule knows"),
    Signal("by_killed", -2.0, "a process had been killed: its peers notice it sooner than its launcher"),
    # That nothing failed.
    Signal("nothing_failed", 1.0, "most logs that show no failure are of jobs that have none"),
    Signal("ended_well", 5.0, "a line at the end says that the job ended well"),
    Signal("reached_end", 2.0, "the last step that was planned was made"),
    Signal("progress", 1.5, "the job made progress to its end"),
    Signal("calm_end", 0.5, "the last lines are regular"),
    Signal("good_end", 1.5, "the last lines say that something was completed"),
    Signal("no_progress", -0.5, "the log shows no progress"),
)  # fmt: skip
BY_NAME: Final = {signal.name: signal for signal in SIGNALS}
