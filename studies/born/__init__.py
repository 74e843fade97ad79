"""Born a Transformer: which letter tasks small decoders learn, how deep alternations must be, what cuts do."""
