-- Readers of events are there. KEYS: the audience. ARGV: for how many milliseconds from now it
-- stands. Its value is since when (Unix, in milliseconds, by the broker's clock) it has stood
-- without a break. Never shortened: others may say that they stay for longer.
-- Gives 1 where it begins now.

local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
if redis.call('SET', KEYS[1], now, 'PX', ARGV[1], 'NX') then
    return 1
end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[1]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 0
