"""The ways in which logs arrive: one module per protocol, pure functions from a request to batches.

    requests encodings          what a request says of itself; bodies unpacked, within bounds
    credentials                 tokens as each protocol's clients show them, and tenants
    identity gathering          whose line is it (rules/identity.yaml); lines of one owner become one batch
    protobuf                    the wire format, read lazily
    plain records otlp loki     the protocols
    splunk elastic syslog forward

A protocol knows nothing of the application. The routes (``service/api/shipping.py``) read bodies, hand the batches to
``ingest`` and write the answers that each protocol wants.
"""
