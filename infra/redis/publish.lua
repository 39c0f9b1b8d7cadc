-- One batch of a thread's events: into its stream, and to who listens now.
-- KEYS: the stream. ARGV: the id of the batch's last event, the events as a JSON array, how
-- many batches are kept, for how many milliseconds, the channel.
-- Gives nothing, or the stream's last id where that is not below this one's.
local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], ARGV[1], 'e', ARGV[2])
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
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PUBLISH', ARGV[5], ARGV[2])
return false
