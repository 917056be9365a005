"""Routes that schedulers ask; of the server they import `server.routing` alone."""
