-- The meeting rooms of the booking assistant. Safe while older workers run.
CREATE SCHEMA booking;

CREATE TABLE booking.rooms (
    room_no   integer GENERATED ALWAYS AS IDENTITY UNIQUE,
    room_id   text PRIMARY KEY,
    name_en   text NOT NULL,
    name_zh   text NOT NULL,
    capacity  integer NOT NULL CHECK (capacity > 0),
    equipment text[] NOT NULL DEFAULT '{}',
    closed    boolean NOT NULL DEFAULT false
);

CREATE TABLE booking.bookings (
    booking_no bigint GENERATED ALWAYS AS IDENTITY (START 1001) PRIMARY KEY,
    request_id text NOT NULL UNIQUE,
    room_no    integer NOT NULL REFERENCES booking.rooms (room_no),
    during     tstzrange NOT NULL CHECK (NOT isempty(during)),
    people     integer NOT NULL CHECK (people > 0),
    thread_id  text NOT NULL,
    booked_at  timestamptz NOT NULL,
    -- No two bookings of a room overlap. A range of one number in place of the number itself:
    -- an index of numbers beside ranges would take an extension, and its installation rights.
    EXCLUDE USING gist (int4range(room_no, room_no, '[]') WITH &&, during WITH &&)
);

-- A few to begin with; they are data, to be changed.
INSERT INTO booking.rooms (room_id, name_en, name_zh, capacity, equipment) VALUES
    ('R1', 'Willow', '柳', 4, '{tv}'),
    ('R2', 'Bamboo', '竹', 6, '{tv,whiteboard}'),
    ('R3', 'Plum', '梅', 8, '{projector,whiteboard}'),
    ('R4', 'Orchid', '兰', 10, '{projector,video}'),
    ('R5', 'Pine', '松', 12, '{projector,whiteboard,video}'),
    ('R6', 'Lotus', '莲', 20, '{projector,whiteboard,video,tv}');
