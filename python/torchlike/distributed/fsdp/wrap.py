"""Which modules are wrapped: policies, and a way of applying them."""

from torchlike import _absent

globals().update(
    _absent.names(
        __name__,
        "nothing connects processes yet",
        "ModuleWrapPolicy CustomPolicy always_wrap_policy lambda_auto_wrap_policy size_based_auto_wrap_policy "
        "transformer_auto_wrap_policy enable_wrap wrap _or_policy",
    )
)
