"""The only place that spells private or version-dependent names of other libraries."""
