"""The studies, one file a figure of a paper."""
