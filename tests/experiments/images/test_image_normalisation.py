import pytest
import torch

from experiments.images import ImageNormalisation

D = torch.float64


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(3)
    return torch.randint(256, (7, 3, 4, 6), generator=generator, dtype=torch.uint8)


def test_statistics_are_those_of_all_pixels(images):
    fitted = ImageNormalisation.fit(images)
    channels = images.double().transpose(0, 1).flatten(1) / 255  # [C, values]
    assert torch.allclose(fitted.x_mean, channels.mean(1), rtol=1e-14, atol=0)
    assert torch.allclose(fitted.x_std, channels.std(1), rtol=1e-14, atol=0)


def test_leading_axes_are_free_and_the_way_back(images):
    fitted = ImageNormalisation.fit(images)
    before, x = images.clone(), fitted.x(images, D)
    assert torch.equal(images, before)
    assert torch.equal(fitted.x(images.expand(2, *images.shape), D)[1], x)
    assert torch.equal(fitted.x(images[0], D), x[0])
    assert torch.allclose(fitted.invert_x(x), images.double() / 255, rtol=0, atol=1e-15)
    assert fitted.invert_x(x.float()).dtype == torch.float32


def test_a_constant_channel_is_divided_by_one(images):
    images[:, 1] = 51
    fitted = ImageNormalisation.fit(images)
    assert fitted.x_std[1] == 1.0 and fitted.x_mean[1] == 0.2
    assert fitted.x(images, D)[:, 1].abs().max() < 1e-16


@pytest.mark.parametrize(
    ("mean", "std", "error", "message"),
    [
        ((0.1,), torch.ones(1), TypeError, "x_mean must be a floating-point tensor, got .*use"),
        (torch.zeros(2), torch.ones(3), ValueError, r"one entry per channel, got shapes \(2,\) and \(3,\)"),
        (torch.zeros(1), torch.zeros(1), ValueError, r"x_std finite and positive, got \[0.0\] and \[0.0\]"),
    ],
)
def test_impossible_statistics(mean, std, error, message):
    with pytest.raises(error, match=message):
        ImageNormalisation(mean, std)


def test_arguments_that_are_no_pixels(images):
    fitted = ImageNormalisation.fit(images)
    with pytest.raises(TypeError, match="uint8 tensor of pixels from 0 to 255, got torch.float32"):
        fitted.x(images.float())
    with pytest.raises(TypeError, match="uint8 tensor of pixels from 0 to 255, got ndarray"):
        ImageNormalisation.fit(images.numpy())
    with pytest.raises(TypeError, match="dtype must be a floating-point type .* got torch.int64"):
        fitted.x(images, torch.int64)
    with pytest.raises(TypeError, match="normalised images of a floating-point type, got torch.uint8"):
        fitted.invert_x(images)
    with pytest.raises(ValueError, match=r"with C = 3 channels, .* got shape \(7, 1, 4, 6\)"):
        fitted.x(images[:, :1])
    with pytest.raises(ValueError, match="with C = 3 channels"):
        fitted.invert_x(torch.zeros(3, 3))
    for shape in ((0, 3, 4, 6), (3, 4, 6)):
        with pytest.raises(ValueError, match=r"\[N, C, H, W\] with at least one image, got"):
            ImageNormalisation.fit(torch.zeros(shape, dtype=torch.uint8))
