"""The service diagnoses many jobs at once, stores what it finds, and acts. It is a thin shell over ``diagnose``.

The path of a push, from request to action:

    api  intake     a request of any protocol -> batches
    journal         batches -> on disk, before the answer; ``segments`` are its files
    live            the journal -> the state of each running job, and its diagnosis
    store           what is known -> SQLite or PostgreSQL; all SQL is here
    acting          a diagnosis -> a decision -> an order -> its outcome
    notify          what happened -> webhooks

Beside the path:

    raw             raw logs, if they are wanted
    learning        kept lines -> learned rules and a model's diagnoses, in a process of its own
    retention       what is deleted, and when
    net             requests to others: guarded and signed
    opening         the port, while all of this gets ready
    doors  edge     who may connect, and what is checked before a request is read
    probes          whether all of it works, found out by doing it
    sign_in         people from an OpenID provider, and service accounts, beside the tokens of ``auth``
    auth  names  settings  events  telemetry  errors
    nvrx            the API of NVIDIA's resiliency extension
    runtime         the parts, put together; ``app`` and ``server`` put HTTP around them
    dashboard       the pages for people
    demo            a week of sample jobs to look at

Which package may import which is in pyproject.toml (``tool.importlinter``). ``./test`` checks it.
"""
