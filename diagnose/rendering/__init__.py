"""A report in; what people read out: text for a terminal, Markdown for a ticket, one HTML file."""

__all__ = ["characters", "html", "markdown", "phrases", "printed_rule", "study_page", "terminal", "text", "why"]
