"""Training of the testbed's five models on exact expectations of their grammars: a module for each kind of model."""
