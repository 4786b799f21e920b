"""RULER's thirteen tasks with the published parameters (Hsieh et al., arXiv 2404.06654)."""

from fitness.ruler.task import NAMES, RulerTask

__all__ = ["NAMES", "RulerTask"]
