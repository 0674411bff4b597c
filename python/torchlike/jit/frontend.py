"""What compiling to TorchScript raises, under PyTorch's names; the trees that its reader makes are not there."""

from __future__ import annotations

from torchlike import _absent
from torchlike.jit._errors import FrontendError as FrontendError
from torchlike.jit._errors import NotSupportedError as NotSupportedError
from torchlike.jit._errors import UnsupportedNodeError as UnsupportedNodeError

globals().update(
    _absent.names(
        __name__,
        "code of Python is compiled without its trees",
        """Apply Assert Assign Attribute AugAssign BinOp Break Builder ClassDef Const Continue Decl Def Delete DictComp
        DictLiteral Dots EmptyTypeAnnotation ExprBuilder ExprStmt FalseLiteral For FrontendTypeError Ident If ListComp
        ListLiteral NoneLiteral Param Pass Property Raise Return Select SliceExpr Starred Stmt StmtBuilder StringLiteral
        Subscript TernaryIf TrueLiteral TupleLiteral UnaryOp Var While With WithItem WithItemBuilder build_class_def
        build_def build_expr build_ignore_context_manager build_param build_param_list build_stmt build_stmts
        build_withitem build_withitems find_before get_class_assigns get_class_properties get_default_args
        get_default_args_for_class get_jit_class_def get_jit_def is_reserved_name
        is_torch_jit_ignore_context_manager""",
    )
)
