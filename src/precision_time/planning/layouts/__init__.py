"""How a model is spread over devices: layouts ranked, timeline, memory over the step."""
