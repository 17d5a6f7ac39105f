"""The REST API: FastAPI in its own thread, in front of :class:`hydra.service.ControllerService`."""
