"""Secrets that are known by their form: who issues them, and what they look like.

A pattern is a fixed word and one run of characters, so that a run is read once. ``re`` and Hyperscan read them alike. Each
comes from the documents of the issuer, or from the rules of gitleaks.
"""

from __future__ import annotations

from typing import Final

KNOWN: Final = (
    ("Hugging Face", r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}"),
    ("Stripe", r"(?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    ("GitHub", r"gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"),
    ("GitLab", r"gl(?:pat|ptt|dt|rt|cbt|agent|oas|ft|soat|imt|ffct)-[\w\-]{16,}|GR1348941[\w\-]{20,}"),
    ("Slack", r"xox[a-z](?:\.xox[a-z])?-[\w\-]{10,}|xapp-[\w\-]{10,}"),
    ("AWS", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}|ABSK[A-Za-z0-9+/]{60,}"),
    ("Alibaba, Tencent, Volcano Engine", r"LTAI[A-Za-z0-9]{12,}|AKID[A-Za-z0-9]{13,}|AKLT[A-Za-z0-9]{20,}"),
    ("Google", r"AIza[\w\-]{30,}|ya29\.[\w\-]{16,}|GOCSPX-[\w\-]{16,}"),
    ("Azure", r"[\w~.\-]{3}[0-9]Q~[\w~.\-]{28,}"),
    ("NVIDIA", r"nvapi-[\w\-]{16,}"),
    ("Weights & Biases", r"wandb_v[0-9]+_\w{16,}"),
    (
        "models as a service",
        r"gsk_[A-Za-z0-9]{16,}|r8_[A-Za-z0-9]{16,}|xai-[A-Za-z0-9]{20,}|pplx-[A-Za-z0-9]{20,}|fw_[A-Za-z0-9]{22,}",
    ),
    ("clouds of GPUs", r"rpa_[A-Za-z0-9]{20,}|fo1_[\w\-]{20,}|fm[12][ar]?_[A-Za-z0-9+/=]{20,}"),
    ("LangSmith, Prefect", r"lsv2_(?:pt|sk)_[\w]{20,}|pn[ub]_[A-Za-z0-9]{20,}"),
    (
        "PyPI, npm, Docker, RubyGems",
        r"pypi-[\w\-]{16,}|npm_[A-Za-z0-9]{20,}|dckr_(?:pat|oat)_[\w\-]{16,}|rubygems_[a-f0-9]{32,}",
    ),
    ("DigitalOcean", r"do[opr]_v1_[a-f0-9]{20,}"),
    ("HashiCorp", r"hv[sbr]\.[\w\-]{16,}|[A-Za-z0-9]{14}\.atlasv1\.[\w\-=]{40,}"),
    ("Databricks", r"dapi[a-f0-9]{32}(?:-[0-9])?"),
    ("Grafana, Sentry, New Relic", r"gl(?:sa|c)_[\w+/=]{32,}|sntry[su]_[\w+/=]{20,}|NR(?:AK|II|JS)-[A-Za-z0-9\-]{19,}"),
    ("Tailscale, Cloudflare", r"tskey-[\w\-]{12,}|v1\.0-[a-f0-9]{24}-[a-f0-9]{64,}"),
    ("Shopify, Square", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{16,}|sq0(?:atp|csp|idp)-[\w\-]{20,}"),
    ("mail", r"SG\.[\w.\-]{32,}|xkeysib-[a-f0-9]{32,}[\w\-]*"),
    (
        "Linear, Notion, Figma, Postman, Supabase",
        r"lin_api_[A-Za-z0-9]{20,}|ntn_[A-Za-z0-9]{30,}|figd_[\w\-]{20,}|PMAK-[a-f0-9]{20,}[\w\-]*|sbp_[a-f0-9]{30,}",
    ),
    (
        "Doppler, Pulumi, PlanetScale, OpenShift",
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.]{20,}|pul-[a-f0-9]{30,}|pscale_(?:tkn|oauth|pw)_[\w=.\-]{20,}|sha256~[\w\-]{43}",
    ),
    ("1Password, age", r"ops_eyJ[A-Za-z0-9+/=]{40,}|AGE-SECRET-KEY-1[A-Z0-9]{16,}"),
    ("Twilio", r"SK[0-9a-f]{32}"),
    ("Telegram", r"(?:bot)?[0-9]{8,10}:AA[\w\-]{30,}"),
    ("Discord", r"[MNO][\w\-]{23,27}\.[\w\-]{6}\.[\w\-]{27,}"),
    ("JSON Web Tokens, and other JSON in base64", r"eyJ[\w+/=\-]{16,}(?:\.[\w=\-]+)*"),
)
