"""What client, server and builder agree on: field names and types, request limits, errors, the manifest.

Standard library only, imports nothing of ours, opens no files.
"""
