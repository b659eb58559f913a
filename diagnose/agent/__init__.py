"""The model's side: what is asked, what is believed of the answer, and rules that are learned from it.

    redaction          what must not leave the process -> marks; counted
    prompts            prompts/ -> what is asked, rendered, with the schema of its answer
    settings           where the model is, with which key, what it may cost
    budget             budgets, accounts and the circuit breaker
    answers            a question, its samples, and which of them are believed
    protocol           what is sent, what is left out when refused, what is read of what comes back
    endpoint           the wire: one request out, bounded bytes or a named trouble back
    records            the cache of answers; recording and replaying
    capabilities       what an endpoint can do, by trying
    model              the one door to an endpoint: questions in, checked answers out
    miner              lines no rule knows -> templates; needs no model
    learned            rules with provenance and states: proposed, shadow, active, retired
    log_agent          unknown lines -> proposed filter rules
    incidents          past failures whose cause is known, found by words and by meaning
    retrieval          which kept lines of a failed job are shown, and what more may be read
    failure_agent      an unexplained failure -> a cause with evidence
    failure_rules      a confirmed diagnosis -> a failure rule

Imported only where it is called: without this folder logs are still compressed and diagnosed.
"""
