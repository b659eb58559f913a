"""Connections that are no HTTP in; lines out, on disk before they are acknowledged, where the protocol can do that.

listener            a port: TLS, how many connections, who sends
lines               lines of a connection, put on disk again and again until they are there
syslog forward      what is said on a connection
otlp_grpc           OTLP over gRPC, by grpcio
ports               which of them are wanted
"""

__all__ = ["forward", "lines", "listener", "otlp_grpc", "ports", "syslog"]
