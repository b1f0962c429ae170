"""Ferrum: an LLM inference and serving engine for plain CPUs."""

__version__ = "0.1.0"
