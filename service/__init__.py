"""The service: many jobs, kept, acted upon; a thin shell over ``diagnose``.

The map, in reading order; a module imports only what stands above it:

    errors settings batch               refusals; all configuration; what every protocol becomes
    journal                             accepted bytes, on disk before the answer
    store                               tables, migrations; all SQL is here
    telemetry events flusher            numbers for Prometheus; what happens; what was read goes into the database
    concealment rawlog archive          raw logs, if they are wanted: behind the journal, on disk for good
    verdicts attempts scanners          one attempt while it is live, and the threads that read
    jobs ingest                         all that is live; the one door for logs
    retention                           what is deleted: by age, by size, because somebody says so
    protocols                           ways logs arrive: request -> batches
    actions                             diagnosis -> decision -> action: who says yes, who carries it out
    outgoing signing executors          requests to others, signed; ways to act: Slurm, Kubernetes, a webhook, a program
    dispatch remote                     approved orders -> executors, once; the same from afar
    auth service api app server         tokens; the parts put together; one router a noun; HTTP
    dashboard demo                      the pages for people; a week to look at
"""
