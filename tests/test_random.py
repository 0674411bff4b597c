@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float64])
def test_bernoulli_writes_zeros_and_ones_of_any_real_type(dtype):
    torch.manual_seed(0)
    wanted = torch.bernoulli(torch.full((8,), 0.5))
    torch.manual_seed(0)
    out = torch.empty(8, dtype=dtype)
    torch.bernoulli(torch.full((8,), 0.5), out=out)
    assert torch.equal(out, wanted.to(dtype))
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        torch.bernoulli(torch.full((8,), 0.5), out=torch.empty(8, dtype=torch.complex64))
