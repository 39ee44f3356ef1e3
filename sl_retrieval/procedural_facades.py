"""Generated building fronts: what a landmark of ``procedural_landmarks`` looks like from the front.

A facade is drawn from a random generator: up to three blocks (nave, wings, towers), each with
floors and bays, a window form for each floor, a wall material, a roof, and a door. Twelve palettes
are shared by all facades, so colour alone tells few of them apart.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

TEXTURE = 160
"""Side of a facade's texture in pixels."""

BASE = 0.985
"""Height of the ground line, as a part of the texture's height from the top."""

Colour = tuple[int, int, int]
Box = tuple[float, float, float, float]

_DRAWN = 2 * TEXTURE  # drawn larger and reduced, since ImageDraw does not smooth edges
_GROUND = BASE * _DRAWN

# Wall, trim, roof, glass, door.
_PALETTES: tuple[tuple[Colour, ...], ...] = (
    ((196, 178, 146), (226, 216, 194), (110, 92, 84), (52, 60, 74), (84, 58, 40)),
    ((164, 92, 70), (214, 200, 178), (84, 78, 82), (44, 52, 62), (48, 66, 58)),
    ((208, 200, 188), (168, 158, 146), (92, 108, 118), (60, 74, 92), (70, 52, 44)),
    ((220, 186, 122), (246, 236, 214), (156, 88, 62), (66, 74, 80), (60, 84, 96)),
    ((150, 146, 140), (192, 188, 180), (80, 100, 92), (46, 50, 60), (56, 44, 38)),
    ((206, 154, 132), (238, 222, 206), (98, 70, 62), (72, 66, 70), (102, 62, 46)),
    ((178, 186, 174), (230, 230, 220), (124, 74, 62), (58, 72, 70), (44, 70, 64)),
    ((132, 104, 84), (186, 160, 128), (66, 60, 62), (40, 40, 46), (92, 70, 48)),
    ((232, 226, 212), (200, 190, 172), (172, 104, 76), (82, 98, 114), (58, 72, 108)),
    ((174, 148, 112), (208, 190, 158), (94, 130, 116), (54, 52, 58), (70, 44, 36)),
    ((188, 170, 176), (222, 212, 214), (84, 80, 96), (60, 58, 76), (82, 52, 60)),
    ((146, 120, 100), (228, 208, 180), (138, 84, 58), (62, 66, 66), (40, 52, 46)),
)


@dataclass(frozen=True)
class _Style:
    """What the blocks of one facade have in common."""

    wall: Colour
    trim: Colour
    roof: Colour
    glass: Colour
    door: Colour
    material: str
    floor_windows: tuple[str, ...]
    window_width: float
    window_height: float
    bars: int
    head: str
    shutters: bool
    string_course: int
    pilasters: str


def draw_facade(generator: np.random.Generator) -> Image.Image:
    """Draw a facade that stands on the ground line ``BASE``, centred, on a transparent canvas.

    Returns:
        RGBA, TEXTURE x TEXTURE.
    """
    image = Image.new("RGBA", (_DRAWN, _DRAWN), (0, 0, 0, 0))
    _Painter(image, generator, _style(generator)).facade()
    return _weathered(image.resize((TEXTURE, TEXTURE), Image.Resampling.BOX), generator)


def _style(generator: np.random.Generator) -> _Style:
    palette = _PALETTES[int(generator.integers(len(_PALETTES)))]
    wall, trim, roof, glass, door = (_jittered(colour, generator, 10) for colour in palette)
    forms = ("rectangle", "arch", "round", "pair", "tall", "triple", "pointed", "square", "oriel")
    return _Style(
        wall=wall,
        trim=trim,
        roof=roof,
        glass=glass,
        door=door,
        material=_choice(generator, ("plaster", "brick", "blocks", "stripes", "timber")),
        floor_windows=tuple(_choice(generator, forms) for _ in range(7)),
        window_width=float(generator.uniform(0.36, 0.66)),
        window_height=float(generator.uniform(0.5, 0.76)),
        bars=int(generator.integers(0, 4)),
        head=_choice(generator, ("none", "sill", "triangle", "arc", "frame")),
        shutters=bool(generator.random() < 0.25),
        string_course=int(generator.integers(0, 3)),
        pilasters=_choice(generator, ("none", "none", "all", "ends", "columns")),
    )


def _weathered(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Stains and grain, so that walls are not of one colour."""
    stains = Image.fromarray(generator.normal(1, 0.09, (9, 9)).astype(np.float32))
    shade = np.asarray(stains.resize(image.size, Image.Resampling.BICUBIC))
    shade = shade + generator.normal(0, 0.035, shade.shape)
    pixels = np.array(image)
    pixels[..., :3] = (pixels[..., :3] * shade[..., None]).clip(0, 255)
    return Image.fromarray(pixels)


class _Painter:
    """Draws one facade; lengths are pixels of the large canvas, y points down."""

    def __init__(self, image: Image.Image, generator: np.random.Generator, style: _Style) -> None:
        self.draw = ImageDraw.Draw(image)
        self.generator = generator
        self.style = style

    def facade(self) -> None:
        """Lay out the blocks, draw the lower ones first, and put the door in."""
        width = self._uniform(0.56, 0.92) * _DRAWN
        height = self._uniform(0.4, 0.68) * _DRAWN
        left, right = (_DRAWN - width) / 2, (_DRAWN + width) / 2
        floors = int(self.generator.integers(2, 6))
        bays = int(self.generator.integers(3, 9))
        layout = _choice(self.generator, ("single", "single", "centre", "towers", "tower", "step"))
        top = _GROUND - height
        if layout == "centre":
            part = self._uniform(0.28, 0.5) * width
            self._block(
                (left, top + height * self._uniform(0.1, 0.3), right, _GROUND), floors, bays
            )
            middle = (left + right - part) / 2
            self._block((middle, top, middle + part, _GROUND), floors, max(2, bays // 2))
        elif layout == "towers":
            part = self._uniform(0.16, 0.28) * width
            body_top = top + height * self._uniform(0.12, 0.35)
            self._block((left, body_top, right, _GROUND), floors, bays)
            kind = _choice(self.generator, ("spire", "dome", "flat", "gable"))
            self._block((left, top, left + part, _GROUND), floors + 1, 1, kind)
            self._block((right - part, top, right, _GROUND), floors + 1, 1, kind)
        elif layout == "tower":
            part = self._uniform(0.2, 0.32) * width
            body_top = top + height * self._uniform(0.2, 0.45)
            start = left + self._uniform(0, 1) * (width - part)
            self._block((left, body_top, right, _GROUND), max(2, floors - 1), bays)
            kind = _choice(self.generator, ("spire", "dome", "flat", "hip"))
            self._block((start, top, start + part, _GROUND), floors + 1, 1, kind)
            self._clock(start + part / 2, top + part * 0.42, part * 0.26)
        elif layout == "step":
            part = self._uniform(0.35, 0.65) * width
            lower = top + height * self._uniform(0.15, 0.4)
            tops = (top, lower) if self.generator.random() < 0.5 else (lower, top)
            self._block((left, tops[0], left + part, _GROUND), floors, max(2, bays // 2))
            self._block((left + part, tops[1], right, _GROUND), floors, max(2, bays // 2))
        else:
            self._block((left, top, right, _GROUND), floors, bays)
        self._door(left, right, height / (floors + 0.6))

    def _block(self, box: Box, floors: int, bays: int, roof: str | None = None) -> None:
        left, top, right, bottom = box
        style = self.style
        kinds = ("flat", "gable", "dome", "hip", "balustrade", "stepped", "mansard", "pediment")
        self._roof(box, roof or _choice(self.generator, kinds))
        self._wall(box)
        storey = (bottom - top) / (floors + 0.35)
        ground = bottom - 1.35 * storey
        edges = [ground - storey * floor for floor in range(floors)]
        if style.pilasters != "none":
            self._pilasters(box, bays)
        for number, floor_top in enumerate(edges):
            floor_bottom = bottom if number == 0 else edges[number - 1]
            form = style.floor_windows[number % len(style.floor_windows)]
            bay = (right - left) / bays
            for column in range(bays):
                cell = (left + column * bay, floor_top, left + (column + 1) * bay, floor_bottom)
                self._window(cell, form)
            if style.string_course and number < floors - 1:
                thickness = 2 * style.string_course
                self._rectangle((left, floor_top - thickness / 2, right, floor_top + thickness / 2))
        self._rectangle((left - 4, top - 5, right + 4, top + 3))
        self._rectangle((left - 2, bottom - 6, right + 2, bottom), _scaled(style.wall, 0.7))

    def _wall(self, box: Box) -> None:
        left, top, right, bottom = box
        style = self.style
        self._rectangle(box, style.wall)
        dark, light = _scaled(style.wall, 0.84), _scaled(style.wall, 1.1)
        if style.material in ("brick", "blocks"):
            course = 6 if style.material == "brick" else 13
            for row, y in enumerate(np.arange(top, bottom, course)):
                self.draw.line((left, y, right, y), dark)
                start = left + (row % 2) * course
                for x in np.arange(start, right, 2 * course):
                    self.draw.line((x, y, x, min(y + course, bottom)), dark)
        elif style.material == "stripes":
            for y in np.arange(top, bottom, 22):
                self._rectangle((left, y, right, min(y + 10, bottom)), light)
        elif style.material == "timber":
            beam = _scaled(style.door, 0.8)
            for y in np.arange(top, bottom, (bottom - top) / 4):
                self.draw.line((left, y, right, y), beam, 4)
            for x in np.arange(left, right + 1, (right - left) / 5):
                self.draw.line((x, top, x, bottom), beam, 4)

    def _pilasters(self, box: Box, bays: int) -> None:
        left, top, right, bottom = box
        width = min(9.0, (right - left) / bays / 5)
        edges = np.linspace(left + width / 2, right - width / 2, bays + 1)
        if self.style.pilasters == "ends":
            edges = edges[[0, -1]]
        light = _scaled(self.style.trim, 1.08)
        for x in edges:
            self._rectangle((x - width / 2, top, x + width / 2, bottom))
            if self.style.pilasters == "columns":
                self._rectangle((x - width, top + 2, x + width, top + 8), light)
                self._rectangle((x - width, bottom - 12, x + width, bottom - 5), light)

    def _window(self, cell: Box, form: str) -> None:
        left, top, right, bottom = cell
        style = self.style
        width, height = right - left, bottom - top
        wide = style.window_width * width * (0.75 if form == "tall" else 1)
        tall = style.window_height * height * (1.12 if form == "tall" else 1)
        if form in ("square", "round"):
            wide = tall = min(wide, tall)
        x, y = (left + right) / 2, (top + bottom) / 2
        box = (x - wide / 2, y - tall / 2, x + wide / 2, y + tall / 2)
        if form in ("pair", "triple"):
            count = 2 if form == "pair" else 3
            step = wide / count
            for part in range(count):
                start = box[0] + part * step
                self._pane((start + 1, box[1], start + step - 1, box[3]), "arch")
            return
        if style.shutters and form in ("rectangle", "tall", "square"):
            for start in (box[0] - wide * 0.4, box[2]):
                self._rectangle((start, box[1], start + wide * 0.4, box[3]), style.door)
        if form == "oriel":
            bay = (box[0] - 4, box[1] - 4, box[2] + 4, box[3] + 6)
            self._rectangle(bay, _scaled(style.wall, 0.9))
            self._rectangle((bay[0] - 2, bay[3] - 3, bay[2] + 2, bay[3] + 2))
        self._pane(box, form)
        self._window_head(box)

    def _pane(self, box: Box, form: str) -> None:
        """One opening with its frame; glass varies a little from pane to pane."""
        left, top, right, bottom = box
        glass = _scaled(self.style.glass, self._uniform(0.8, 1.3))
        edge = 3 if self.style.head == "frame" else 2
        outer = (left - edge, top - edge, right + edge, bottom + edge)
        for shape, colour in ((outer, self.style.trim), (box, glass)):
            self._opening(shape, form, colour)
        bar = _scaled(self.style.trim, 0.92)
        if self.style.bars & 1:
            self.draw.line(((left + right) / 2, top, (left + right) / 2, bottom), bar, 2)
        if self.style.bars & 2:
            self.draw.line((left, (top + bottom) / 2, right, (top + bottom) / 2), bar, 2)

    def _opening(self, box: Box, form: str, colour: Colour) -> None:
        left, top, right, bottom = box
        radius = min((right - left) / 2, (bottom - top) / 2)
        if form == "round":
            self.draw.ellipse(_ordered(box), colour)
        elif form == "arch":
            self._rectangle((left, top + radius, right, bottom), colour)
            self.draw.ellipse(_ordered((left, top, right, top + 2 * radius)), colour)
        elif form == "pointed":
            peak = ((left + right) / 2, top)
            shoulder = top + min(1.5 * radius, (bottom - top) / 2)
            self.draw.polygon(
                [(left, bottom), (left, shoulder), peak, (right, shoulder), (right, bottom)], colour
            )
        else:
            self._rectangle(box, colour)

    def _window_head(self, box: Box) -> None:
        left, top, right, bottom = box
        wide = right - left
        if self.style.head == "sill":
            self._rectangle((left - 4, bottom + 1, right + 4, bottom + 5))
        elif self.style.head == "triangle":
            peak = ((left + right) / 2, top - 0.32 * wide)
            self.draw.polygon([(left - 4, top - 2), peak, (right + 4, top - 2)], self.style.trim)
        elif self.style.head == "arc":
            arc = _ordered((left - 3, top - 0.3 * wide, right + 3, top + 0.25 * wide))
            self.draw.arc(arc, 180, 360, self.style.trim, 4)

    def _roof(self, box: Box, kind: str) -> None:
        left, top, right, _ = box
        width, middle = right - left, (left + right) / 2
        rise = min(top - 4, width * self._uniform(0.25, 0.6))
        roofs: dict[str, Callable[[], None]] = {
            "flat": lambda: None,
            "gable": lambda: self._gable(left, right, top, rise),
            "pediment": lambda: self._pediment(left, right, top, min(rise, 0.3 * width)),
            "hip": lambda: self._hip(left, right, top, rise, 0.3),
            "mansard": lambda: self._hip(left, right, top, 0.6 * rise, 0.08),
            "spire": lambda: self._gable(left, right, top, min(top - 4, width * 2)),
            "dome": lambda: self._dome(middle, top, min(width / 2, rise, (top - 4) / 1.8)),
            "balustrade": lambda: self._balustrade(left, right, top),
            "stepped": lambda: self._steps(left, right, top, rise),
        }
        roofs[kind]()
        if kind in ("gable", "hip", "mansard") and self.generator.random() < 0.5:
            x = left + width * self._uniform(0.1, 0.3)
            slope_top = top - min(0.4 * rise, 2 * rise * (x - left) / width) - 12
            self._rectangle((x, slope_top, x + 10, top), _scaled(self.style.wall, 0.75))

    def _gable(self, left: float, right: float, top: float, rise: float) -> None:
        peak = ((left + right) / 2, top - rise)
        self.draw.polygon([(left - 5, top), peak, (right + 5, top)], self.style.roof)
        dark = _scaled(self.style.roof, 0.8)
        for part in np.arange(0.15, 1, 0.15):
            half = (right - left) / 2 * (1 - part)
            y = top - rise * part
            self.draw.line((peak[0] - half, y, peak[0] + half, y), dark)

    def _pediment(self, left: float, right: float, top: float, rise: float) -> None:
        middle = (left + right) / 2
        outer = [(left - 5, top), (middle, top - rise), (right + 5, top)]
        inner = [(left + 9, top - 4), (middle, top - rise + 7), (right - 9, top - 4)]
        self.draw.polygon(outer, self.style.trim)
        self.draw.polygon(inner, _scaled(self.style.wall, 0.9))
        radius = rise * 0.24
        self._clock(middle, top - 0.36 * rise, radius)

    def _hip(self, left: float, right: float, top: float, rise: float, inset: float) -> None:
        shift = inset * (right - left)
        corners = [(left - 5, top), (left + shift, top - rise), (right - shift, top - rise)]
        self.draw.polygon([*corners, (right + 5, top)], self.style.roof)
        dormers = int(self.generator.integers(0, 5))
        for x in np.linspace(left + shift, right - shift, dormers + 2)[1:-1]:
            size = 0.36 * rise
            self._pane(
                (x - size / 3, top - 0.3 * rise - size, x + size / 3, top - 0.3 * rise), "arch"
            )

    def _dome(self, middle: float, top: float, radius: float) -> None:
        drum = radius * self._uniform(0.1, 0.4)
        self._rectangle((middle - radius, top - drum, middle + radius, top))
        ball = (middle - radius, top - drum - radius, middle + radius, top - drum + radius)
        self.draw.pieslice(_ordered(ball), 180, 360, self.style.roof)
        for part in (0.35, 0.7):
            rib = (middle - part * radius, ball[1], middle + part * radius, ball[3])
            self.draw.arc(_ordered(rib), 180, 360, _scaled(self.style.roof, 1.2), 2)
        lantern = radius * 0.16
        self._rectangle((middle - lantern, ball[1] - 2 * lantern, middle + lantern, ball[1] + 2))

    def _balustrade(self, left: float, right: float, top: float) -> None:
        self._rectangle((left, top - 16, right, top - 13))
        for x in np.arange(left, right, 9):
            self._rectangle((x, top - 14, x + 4, top))
        if self.generator.random() < 0.5:
            for x in np.linspace(left + 6, right - 6, int(self.generator.integers(3, 7))):
                self.draw.ellipse(_ordered((x - 4, top - 34, x + 4, top - 26)), self.style.trim)
                self._rectangle((x - 3, top - 27, x + 3, top - 14))

    def _steps(self, left: float, right: float, top: float, rise: float) -> None:
        count = int(self.generator.integers(3, 6))
        for step in range(count):
            inset = (right - left) / 2 * step / count
            y = top - rise * (step + 1) / count
            self._rectangle((left + inset, y, right - inset, top), self.style.wall)
            self._rectangle((left + inset - 2, y, right - inset + 2, y + 4))
        self._pane((*_centred((left + right) / 2, top - rise * 0.35, rise * 0.2),), "round")

    def _clock(self, x: float, y: float, radius: float) -> None:
        self.draw.ellipse(_ordered(_centred(x, y, radius)), self.style.trim)
        self.draw.ellipse(_ordered(_centred(x, y, 0.78 * radius)), _scaled(self.style.glass, 0.9))
        for spoke in range(int(self.generator.integers(0, 9))):
            angle = 2 * math.pi * spoke / 8
            end = (x + 0.75 * radius * math.cos(angle), y + 0.75 * radius * math.sin(angle))
            self.draw.line((x, y, *end), self.style.trim, 2)

    def _door(self, left: float, right: float, storey: float) -> None:
        """One portal or several, in the middle or aside, with steps."""
        count = int(_choice(self.generator, ("1", "1", "1", "2", "3", "5")))
        form = _choice(self.generator, ("arch", "rectangle", "pointed"))
        wide = min(storey * self._uniform(0.5, 0.95), (right - left) / (1.5 * count + 1))
        tall = storey * self._uniform(0.8, 1.15)
        middle = left + (right - left) * (0.5 if count > 1 else self._uniform(0.3, 0.7))
        for number in range(count):
            x = middle + (number - (count - 1) / 2) * 1.4 * wide
            door = (x - wide / 2, _GROUND - tall, x + wide / 2, _GROUND)
            edge = 0.12 * wide
            frame = (door[0] - edge, door[1] - edge, door[2] + edge, _GROUND)
            self._opening(frame, form, self.style.trim)
            self._opening(door, form, self.style.door)
            self.draw.line((x, door[1] + 3, x, _GROUND), _scaled(self.style.door, 0.6), 2)
        half = 0.8 * wide * count
        for step in range(int(self.generator.integers(0, 3))):
            y = _GROUND - 4 * step
            self._rectangle((middle - half + 4 * step, y - 4, middle + half - 4 * step, y))

    def _rectangle(self, box: Box, colour: Colour | None = None) -> None:
        self.draw.rectangle(_ordered(box), colour or self.style.trim)

    def _uniform(self, low: float, high: float) -> float:
        return float(self.generator.uniform(low, high))


def _ordered(box: Box) -> Box:
    """The box with corners in order: narrow parts may turn inside out by a pixel."""
    left, top, right, bottom = box
    return left, top, max(left, right), max(top, bottom)


def _centred(x: float, y: float, radius: float) -> Box:
    return x - radius, y - radius, x + radius, y + radius


def _scaled(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(255, round(value * factor)) for value in colour)
    return red, green, blue


def _jittered(colour: Colour, generator: np.random.Generator, amount: int) -> Colour:
    red, green, blue = (
        min(255, max(0, value + int(generator.integers(-amount, amount + 1)))) for value in colour
    )
    return red, green, blue


def _choice(generator: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[int(generator.integers(len(options)))]
