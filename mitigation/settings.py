from dataclasses import dataclass, field


@dataclass(frozen=True)
class TuningSettings:
    epochs: int = field(default=1, metadata={"help": "x"})
