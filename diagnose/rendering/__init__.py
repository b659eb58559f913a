"""Report -> what people read: text for a terminal, Markdown for a ticket, HTML that stands alone."""

__all__ = ["characters", "html", "markdown", "terminal", "text", "why"]
