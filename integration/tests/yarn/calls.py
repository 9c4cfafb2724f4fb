"""The results of a client's calls, as one JSON object: the value under "ok", or the error of the client under "error"."""

import json


class Calls:
    def __init__(self, client):
        self.client = client
        self.results = {}
        self.called = set()

    def call(self, method, *arguments, label=None, **named):
        """Calls one method of the client and keeps the result under its name, or under a label."""
        self.called.add(method)
        try:
            value = getattr(self.client, method)(*arguments, **named)
            result = {"ok": getattr(value, "data", value)}
        except Exception as error:  # an exception of the client is its result
            result = {"error": f"{type(error).__name__}: {error}"}
        self.results[label or method] = result
        return result.get("ok")

    def left_out(self, but=()):
        """Public methods of the client that were never called."""
        public = {name for name in dir(self.client) if not name.startswith("_") and callable(getattr(self.client, name))}
        return sorted(public - self.called - set(but))


def print_json(**parts):
    print(json.dumps(parts))
