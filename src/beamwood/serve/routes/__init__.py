"""The endpoints, one file a topic; each exports `routes(service)`, but for the document, which is made of all."""
