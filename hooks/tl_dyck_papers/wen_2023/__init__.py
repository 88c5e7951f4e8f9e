"""Every experiment of Wen et al. 2023 at a chosen scale: claims, measurements, readings."""

from tl_dyck_papers.wen_2023.run import CLAIMS, WEN_2023
from tl_dyck_papers.wen_2023.scales import SCALES, Scale

__all__ = ["CLAIMS", "SCALES", "WEN_2023", "Scale"]
