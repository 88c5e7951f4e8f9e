"""Pictures for notebooks, offline: attention, balance violation, certificates, an RNN at work.

Knows: one model, string or certificate as a picture.
Does not know: studies and runs (`tl_dyck.studies`, `tl_dyck.runs`).

Each function returns a `Widget`. It shows itself in JupyterLab, VS Code, Colab and marimo, and
``.save("x.html")`` writes a page that any browser opens, offline too.

Examples:
    >>> from tl_dyck import DyckLanguage, construct
    >>> from tl_dyck.report import widgets
    >>> widgets.attention(construct.uniform_attention(DyckLanguage(2, 4)), "[()]")
    Widget('Attention of uniform-attention-minimal', 0.03 MB)
"""

from tl_dyck.report.widgets.attention import attention, attention_seeds
from tl_dyck.report.widgets.balance import balance_heatmap
from tl_dyck.report.widgets.certificates import certificate
from tl_dyck.report.widgets.circuits import circuitsvis_attention, circuitsvis_tokens
from tl_dyck.report.widgets.frame import Widget
from tl_dyck.report.widgets.rnn import rnn_steps

__all__ = [
    "Widget",
    "attention",
    "attention_seeds",
    "balance_heatmap",
    "certificate",
    "circuitsvis_attention",
    "circuitsvis_tokens",
    "rnn_steps",
]
