"""How a landmark of ``procedural_landmarks`` is seen: camera, surroundings, light and sensor.

A facade stands in a plane before a pinhole camera, under some sky and on some ground, between plain
neighbours and behind trees, cars, people and lamps. Light and sensor change the picture as a whole.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from sl_retrieval.procedural_facades import BASE, TEXTURE

SIZE = 96
"""Side of a view in pixels."""

Colour = tuple[int, int, int]

# Upper and lower end of the sky: clear, hazy, overcast, dusk, morning, night.
_SKIES: tuple[tuple[Colour, Colour], ...] = (
    ((84, 138, 206), (178, 206, 232)),
    ((150, 180, 210), (214, 220, 222)),
    ((158, 162, 168), (206, 206, 204)),
    ((92, 88, 138), (236, 170, 120)),
    ((140, 164, 204), (244, 222, 190)),
    ((36, 42, 70), (78, 76, 98)),
)
_GROUNDS: tuple[Colour, ...] = (
    (120, 118, 114),
    (92, 94, 98),
    (168, 156, 134),
    (96, 118, 72),
    (140, 126, 108),
)
_CLOTHES: tuple[Colour, ...] = (
    (60, 62, 80),
    (150, 54, 50),
    (210, 206, 196),
    (52, 88, 70),
    (196, 160, 70),
    (40, 40, 42),
)


def draw_view(texture: Image.Image, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Draw one view of a facade.

    Args:
        texture: RGBA, as ``procedural_facades.draw_facade`` makes it.
        generator: draws everything that is not the facade's.

    Returns:
        RGB, (SIZE, SIZE, 3).
    """
    camera = _Camera.draw(generator, texture)
    canvas = _sky(generator)
    draw = ImageDraw.Draw(canvas)
    _draw_neighbours(draw, camera, generator)
    _draw_ground(draw, camera, generator)
    facade = texture.transform(
        canvas.size,
        Image.Transform.PERSPECTIVE,
        camera.texture_from_frame(),
        Image.Resampling.BILINEAR,
    )
    canvas.paste(_with_shadow(facade.convert("RGB"), generator), mask=facade)
    _draw_occluders(draw, camera, generator)
    return _photographed(canvas, generator)


@dataclass(frozen=True)
class _Camera:
    """A pinhole camera before the plane of the facade.

    Attributes:
        matrix: (3, 3) homography from (u, v) in the plane, 0 to 1 inside the texture and v down,
            to homogeneous pixels of the frame.
    """

    matrix: NDArray[np.float64]

    @classmethod
    def draw(cls, generator: np.random.Generator, texture: Image.Image) -> "_Camera":
        """A place up to 55 degrees aside, near or far, that may cut the facade off."""
        left, top, right, bottom = np.array(texture.getbbox()) / TEXTURE
        yaw = math.radians(55) * generator.uniform(-1, 1)
        pitch = math.radians(generator.uniform(-4, 22))
        roll = math.radians(generator.normal(0, 4))
        focal = generator.uniform(0.8, 1.7)
        filled = math.exp(generator.uniform(math.log(0.6), math.log(1.5)))
        zoom = filled / max(right - left, bottom - top)
        rotation = _rotation(roll, 2) @ _rotation(pitch, 0) @ _rotation(yaw, 1)
        shift = generator.uniform(-1, 1, 2) * (0.1 + 0.18 * filled) / zoom
        position = np.array([*shift, focal / zoom])
        plane = np.stack([rotation[:, 0], rotation[:, 1], position], axis=1)
        centre = np.array([[1, 0, -(left + right) / 2], [0, 1, -(top + bottom) / 2], [0, 0, 1.0]])
        frame = SIZE * np.array([[focal, 0, 0.5], [0, focal, 0.5], [0, 0, 1 / SIZE]])
        return cls(frame @ plane @ centre)

    def project(self, u: float, v: float) -> tuple[float, float]:
        """Pixel of a point in the plane, which must lie before the camera."""
        x, y, depth = self.matrix @ (u, v, 1.0)
        return float(x / depth), float(y / depth)

    def sees(self, u: float) -> bool:
        """Whether the plane at ``u`` lies well before the camera from top to ground."""
        return bool(min(self.matrix[2] @ (u, v, 1.0) for v in (0.0, BASE)) > 0.15)

    def texture_from_frame(self) -> list[float]:
        """The eight coefficients of Pillow's PERSPECTIVE transform."""
        inverse = np.linalg.inv(self.matrix @ np.diag([1 / TEXTURE, 1 / TEXTURE, 1]))
        coefficients: list[float] = (inverse / inverse[2, 2]).reshape(-1)[:8].tolist()
        return coefficients


def _sky(generator: np.random.Generator) -> Image.Image:
    upper, lower = _SKIES[int(generator.integers(len(_SKIES)))]
    height = np.linspace(0, 1, SIZE)[:, None, None]
    sky = np.array(upper) * (1 - height) + np.array(lower) * height
    clouds = (_smooth_noise(generator, (5, 4)) + generator.uniform(-1.2, 0.6)).clip(0, 1)[..., None]
    tone = 0.35 * np.array(upper) + 0.65 * np.array([236, 236, 238]) * np.mean(lower) / 220
    return Image.fromarray((sky + (tone - sky) * clouds).clip(0, 255).astype(np.uint8))


def _draw_neighbours(
    draw: ImageDraw.ImageDraw, camera: _Camera, generator: np.random.Generator
) -> None:
    """Plain blocks with a grid of windows beside the facade."""
    for side in (-1, 1):
        if generator.random() < 0.4:
            continue
        near = 0.5 + side * generator.uniform(0.36, 0.56)
        far = near + side * generator.uniform(0.3, 0.8)
        top = generator.uniform(0.25, 0.75)
        if not (camera.sees(near) and camera.sees(far)):
            continue
        wall = generator.integers(90, 215, 3) * 0.4 + generator.integers(90, 215) * 0.6
        _quad(draw, camera, (near, top, far, BASE), _colour(wall))
        columns, rows = (int(count) for count in generator.integers(2, 6, 2))
        glass = _colour(wall * generator.uniform(0.35, 0.75))
        step, rise = (far - near) / columns, (BASE - top) / rows
        for column in range(columns):
            for row in range(rows):
                u, v = near + (column + 0.25) * step, top + (row + 0.2) * rise
                _quad(draw, camera, (u, v, u + 0.5 * step, v + 0.6 * rise), glass)


def _draw_ground(
    draw: ImageDraw.ImageDraw, camera: _Camera, generator: np.random.Generator
) -> None:
    """Everything below the line on which the facade stands."""
    colour = np.array(_GROUNDS[int(generator.integers(len(_GROUNDS)))])
    left, right = camera.project(0.1, BASE), camera.project(0.9, BASE)
    slope = (right[1] - left[1]) / (right[0] - left[0])
    for band, shade in enumerate((0.86, 1.0, 0.94, 1.06)):
        line = [(x, left[1] + slope * (x - left[0]) + 7 * band - 1) for x in (0, SIZE)]
        shaded = _colour(colour * shade * generator.uniform(0.96, 1.04))
        draw.polygon([*line, (SIZE, 3 * SIZE), (0, 3 * SIZE)], shaded)


def _draw_occluders(
    draw: ImageDraw.ImageDraw, camera: _Camera, generator: np.random.Generator
) -> None:
    """Trees, cars, people and lamps; nearer ones stand lower and are larger."""
    unit = math.dist(camera.project(0.5, 0.5), camera.project(0.5, BASE)) / SIZE
    kinds = (_draw_tree, _draw_car, _draw_person, _draw_lamp)
    rates = (0.5, 0.5, 1.4, 0.3)
    things = [
        kind
        for kind, rate in zip(kinds, rates, strict=True)
        for _ in range(generator.poisson(rate))
    ]
    for order in np.argsort(generator.random(len(things))):
        near = generator.uniform(0.02, 0.25)
        x, y = camera.project(generator.uniform(0, 1), BASE)
        scale = SIZE * max(unit, 0.3) * (1 + 2.5 * near)
        things[order](draw, x, y + near * SIZE, scale, generator)


def _draw_tree(
    draw: ImageDraw.ImageDraw, x: float, y: float, scale: float, generator: np.random.Generator
) -> None:
    height = scale * generator.uniform(0.4, 0.8)
    draw.line((x, y, x, y - height), (74, 58, 44), max(1, round(0.05 * scale)))
    leaves = np.array([70, 104, 48]) + generator.integers(-22, 40, 3)
    radius = 0.17 * height * generator.uniform(0.8, 1.5)
    for dx, dy in generator.normal(0, 1, (11, 2)):
        centre = (x + 0.9 * radius * dx, y - 0.8 * height + 0.8 * radius * dy)
        _disc(draw, centre, radius * 0.8, _colour(leaves * generator.uniform(0.7, 1.2)))


def _draw_car(
    draw: ImageDraw.ImageDraw, x: float, y: float, scale: float, generator: np.random.Generator
) -> None:
    length = scale * generator.uniform(0.32, 0.5)
    height = 0.2 * length
    paint = _colour(generator.integers(20, 235) + generator.integers(-20, 21, 3))
    roof = (x + 0.2 * length, y - 2.4 * height, x + 0.75 * length, y - height)
    draw.rounded_rectangle(roof, height / 2, (44, 50, 58))
    draw.rounded_rectangle((x, y - 1.6 * height, x + length, y), height / 2, paint)
    for wheel in (0.2, 0.8):
        _disc(draw, (x + wheel * length, y), 0.45 * height, (28, 28, 30))


def _draw_person(
    draw: ImageDraw.ImageDraw, x: float, y: float, scale: float, generator: np.random.Generator
) -> None:
    height = scale * generator.uniform(0.16, 0.24)
    top, trousers = (_CLOTHES[int(i)] for i in generator.integers(len(_CLOTHES), size=2))
    half = 0.13 * height
    draw.rectangle((x - 0.8 * half, y - 0.45 * height, x + 0.8 * half, y), trousers)
    draw.rectangle((x - half, y - 0.82 * height, x + half, y - 0.42 * height), top)
    _disc(draw, (x, y - 0.9 * height), 0.1 * height, (196, 156, 128))


def _draw_lamp(
    draw: ImageDraw.ImageDraw, x: float, y: float, scale: float, generator: np.random.Generator
) -> None:
    height = scale * generator.uniform(0.6, 0.9)
    draw.line((x, y, x, y - height), (52, 54, 56), max(1, round(0.025 * scale)))
    _disc(draw, (x, y - height), 0.035 * scale, (228, 220, 190))


def _photographed(canvas: Image.Image, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Light, blur and sensor noise."""
    if generator.random() < 0.6:
        canvas = canvas.filter(ImageFilter.GaussianBlur(generator.uniform(0.2, 1.0)))
    angle = generator.uniform(0, 2 * math.pi)
    slope = np.float32(generator.uniform(0, 0.3)) * _distances(angle)
    light = np.asarray(canvas, dtype=np.float32) / 255 * (1 + slope)
    grey = light.mean(axis=2, keepdims=True)
    light = grey + (light - grey) * np.float32(generator.uniform(0.5, 1.2))
    # Light is warm or cool rather than green or purple.
    warm, green = generator.uniform((-0.16, -0.04), (0.16, 0.04))
    cast = np.array([1 + warm, 1 + green, 1 - warm]) * math.exp(generator.uniform(-0.5, 0.15))
    light = (light * cast.astype(np.float32)).clip(0, 1) ** np.float32(
        math.exp(generator.uniform(-0.35, 0.35))
    )
    grain = generator.standard_normal(light.shape, dtype=np.float32)
    light += grain * np.float32(generator.uniform(0.006, 0.03))
    pixels: NDArray[np.uint8] = (light.clip(0, 1) * 255).astype(np.uint8)
    return pixels


def _with_shadow(facade: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Often the soft-edged shadow of something outside the frame."""
    angle, start, depth = generator.uniform((0, -0.4, 0.3), (2 * math.pi, 0.5, 0.6))
    if generator.random() < 0.5:
        return facade
    shadow = ((_distances(angle) - np.float32(start)) * 12).clip(0, 1)
    lit = np.asarray(facade, dtype=np.float32) * (1 - np.float32(depth) * shadow)
    return Image.fromarray(lit.astype(np.uint8))


def _distances(angle: float) -> NDArray[np.float32]:
    """Signed distance of each pixel from a line through the middle: (SIZE, SIZE, 1)."""
    across = np.linspace(-1, 1, SIZE, dtype=np.float32)
    sine, cosine = np.float32(math.sin(angle)), np.float32(math.cos(angle))
    return cosine * across[None, :, None] + sine * across[:, None, None]


def _quad(
    draw: ImageDraw.ImageDraw,
    camera: _Camera,
    box: tuple[float, float, float, float],
    colour: Colour,
) -> None:
    """A rectangle (u0, v0, u1, v1) of the facade's plane."""
    u0, v0, u1, v1 = box
    corners = [camera.project(u, v) for u, v in ((u0, v0), (u1, v0), (u1, v1), (u0, v1))]
    draw.polygon(corners, colour)


def _disc(
    draw: ImageDraw.ImageDraw, centre: tuple[float, float], radius: float, colour: Colour
) -> None:
    x, y = centre
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), colour)


def _colour(values: NDArray[Any]) -> Colour:
    red, green, blue = (int(value) for value in values.clip(0, 255))
    return red, green, blue


def _smooth_noise(generator: np.random.Generator, cells: tuple[int, int]) -> NDArray[np.float32]:
    """Noise of unit deviation that varies over SIZE / cells pixels: (SIZE, SIZE)."""
    coarse = Image.fromarray(generator.standard_normal(cells, dtype=np.float32))
    return np.asarray(coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC))


def _rotation(angle: float, axis: int) -> NDArray[np.float64]:
    """Rotation by ``angle`` about x, y or z (0, 1, 2)."""
    matrix = np.eye(3)
    first, second = (i for i in range(3) if i != axis)
    matrix[first, first] = matrix[second, second] = math.cos(angle)
    matrix[first, second], matrix[second, first] = -math.sin(angle), math.sin(angle)
    return matrix
