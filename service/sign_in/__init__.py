"""A person's sign-in at an OpenID provider, or the token of a service account -> who it is, and what that one may do.

access          the file that says who may come in, and with which role
issuer          the keys of an issuer, and whether a token was signed with one of them
accounts        service accounts by JSON Web Tokens, such as those of Kubernetes
people          the way to the provider and back, and the sessions that begin with it
entrance        all of these for one service
"""

__all__ = ["access", "accounts", "entrance", "issuer", "people"]
