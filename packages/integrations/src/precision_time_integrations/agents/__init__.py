"""What agents ask by: tools of the Model Context Protocol over the same requests as every other door."""
