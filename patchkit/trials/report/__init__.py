"""The living plan as Markdown and as one HTML page, with a chart.

``words`` and ``markdown`` are pure; ``chart`` draws by matplotlib (the extra ``plot``).
"""
