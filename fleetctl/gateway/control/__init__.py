"""The controller's side of the gateway: the settings that it sends, and the reports that it
receives.
"""
