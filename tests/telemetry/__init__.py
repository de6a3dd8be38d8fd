"""Traces, logs and spans of model calls, as a collector on loopback receives them.

collector.py is a receiver of OTLP over HTTP, by the messages of the official package. The product
runs as it is: a controller of its own, real tasks, a real gateway before an emulated model.
"""
