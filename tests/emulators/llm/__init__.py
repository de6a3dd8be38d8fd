"""A model server for tests: OpenAI's and Ollama's protocol, N slots with a real queue, faults."""
