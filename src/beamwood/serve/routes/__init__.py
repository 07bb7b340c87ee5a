"""The endpoints, one file a topic; each exports `routes(service)`."""
