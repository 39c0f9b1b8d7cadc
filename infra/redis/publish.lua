-- One batch of a thread's events: into its stream, and to who listens now.
-- KEYS: the stream. ARGV: the id of the batch's last event, the events as a JSON array, how
-- many batches are kept, for how many milliseconds, the channel, the time (Unix, in
-- milliseconds; empty: by the broker's clock, the same for all who publish).
-- Gives nothing, or the stream's last id where that is not below this one's.

-- So many of the oldest batches are looked at in one call, so that none takes long.
local AT_ONCE = 32

local now = tonumber(ARGV[6])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local added = redis.pcall(
    'XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], ARGV[1], 'e', ARGV[2], 't', string.format('%d', now))
if type(added) == 'table' and added.err then
    if not string.find(added.err, 'equal or smaller', 1, true) then
        return added
    end
    local about = redis.call('XINFO', 'STREAM', KEYS[1])
    for i = 1, #about, 2 do
        if about[i] == 'last-generated-id' then
            return about[i + 1]
        end
    end
    return added
end

local function oldest(count)
    return redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', count)
end

local since = now - tonumber(ARGV[4])
local function is_old(entry)
    return (tonumber(entry[2][4]) or 0) < since
end

if is_old(oldest(1)[1]) then
    -- The one that was just added is not old; the last that is looked at stays.
    local entries = oldest(AT_ONCE)
    local kept = 1
    while kept < #entries and is_old(entries[kept]) do
        kept = kept + 1
    end
    redis.call('XTRIM', KEYS[1], 'MINID', entries[kept][1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[5], ARGV[2])
return false
