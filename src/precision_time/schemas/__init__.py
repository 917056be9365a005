"""JSON schemas of job files and of answers, for editors, agents and the service's OpenAPI.

Beside the rooms: of them only `init --schema` asks for them.
"""
