"""The service: many jobs, kept, acted upon; a thin shell over ``diagnose``.

The map, in reading order; a module imports only what stands above it:

    errors settings batch               refusals; all configuration; what every protocol becomes
    journal                             accepted bytes, on disk before the answer
    store                               tables, migrations; all SQL is here
    telemetry events                    numbers for Prometheus; what happens, as it happens
    groups                              the same failure over jobs and days
    jobs ingest                         live jobs; the one door for logs
    protocols                           ways logs arrive: request -> batches
    auth api app                        tokens; one router a noun; wiring and nothing else
"""
