"""Every experiment of Wen et al. 2023 at a chosen scale: claims, measurements, readings."""

from tl_dyck.studies.paper.run import CLAIMS, WEN_2023
from tl_dyck.studies.paper.scales import SCALES, Scale

__all__ = ["CLAIMS", "SCALES", "WEN_2023", "Scale"]
