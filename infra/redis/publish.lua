-- Batches of events, each of one thread: into its stream, and to who listens now.
-- KEYS: the streams. ARGV: how many batches of a stream are kept, for how many milliseconds, the
-- time (Unix, in milliseconds; empty: by the broker's clock, the same for all who publish); then
-- for each stream the id of the batch's last event, the events as a JSON array, the channel.
-- Gives for each stream "", or its last id where that is not below this one's, or {error}.

-- So many of the oldest batches are looked at in one call, so that none takes long.
local AT_ONCE = 32

local most, age = ARGV[1], ARGV[2]
local now = tonumber(ARGV[3])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local stamp, since = string.format('%d', now), now - tonumber(age)

local function is_old(entry)
    return (tonumber(entry[2][4]) or 0) < since
end

local function drop_old(key)
    local function oldest(count)
        return redis.call('XRANGE', key, '-', '+', 'COUNT', count)
    end
    -- The one that was just added is not old; the last that is looked at stays.
    if redis.call('XLEN', key) == 1 or not is_old(oldest(1)[1]) then
        return
    end
    local entries = oldest(AT_ONCE)
    local kept = 1
    while kept < #entries and is_old(entries[kept]) do
        kept = kept + 1
    end
    redis.call('XTRIM', key, 'MINID', entries[kept][1])
end

local function last_id(key)
    local about = redis.call('XINFO', 'STREAM', key)
    for i = 1, #about, 2 do
        if about[i] == 'last-generated-id' then
            return about[i + 1]
        end
    end
end

local function publish(key, id, events, channel)
    local added = redis.pcall(
        'XADD', key, 'MAXLEN', '~', most, id, 'e', events, 't', stamp)
    if type(added) == 'table' and added.err then
        if string.find(added.err, 'equal or smaller', 1, true) then
            return last_id(key)
        end
        return {added.err}
    end
    drop_old(key)
    redis.call('PEXPIRE', key, age)
    redis.call('PUBLISH', channel, events)
    return ''
end

local told = {}
for i, key in ipairs(KEYS) do
    local at = 3 * i
    told[i] = publish(key, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
return told
