"""Training of the testbed's five models, on their grammars' exact expectations: one module a kind of model."""
