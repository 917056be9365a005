"""Routes of PredictDDL; of the server they import `server.routing` alone."""
