"""The model's side: what is asked, what is believed of the answer, and rules that are learned from it.

    redaction          what must not leave the process -> marks; counted
    prompts            prompts/ -> what is asked, rendered, with the schema of its answer
    model              the one door to an endpoint: questions in, checked answers out
    miner              lines no rule knows -> templates; needs no model
    learned            rules with provenance and states: proposed, shadow, active, retired
    log_agent          unknown lines -> proposed filter rules
    retrieval          which kept lines and past incidents bear on a failure
    failure_agent      an unexplained failure -> a cause with evidence; a confirmed one -> a failure rule

Imported only where it is called: without this folder logs are still compressed and diagnosed.
"""
