package io.raptormq.interop.golden;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Plain maps and lists that say what RocketMQ's classes read in some bytes; written as JSON beside the bytes. */
final class Descriptions {
    private static final int INLINE_BODY_BYTES = 64;

    private Descriptions() {}

    /** All stored messages (commit log layout) that follow one another in the buffer, bodies left compressed. */
    static List<Object> storedMessages(ByteBuffer buffer) {
        List<Object> all = new ArrayList<>();
        while (buffer.remaining() >= 8 && buffer.getInt(buffer.position() + 4) != 0) {
            int position = buffer.position();
            MessageExt message = MessageDecoder.decode(buffer, true, false, false, false, true);
            if (message == null) {
                throw new IllegalStateException("no message at byte " + position);
            }
            all.add(stored(message));
        }
        return all;
    }

    private static Map<String, Object> stored(MessageExt message) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("storeSize", message.getStoreSize());
        map.put("bodyCrc", message.getBodyCRC());
        map.put("queueId", message.getQueueId());
        map.put("flag", message.getFlag());
        map.put("queueOffset", message.getQueueOffset());
        map.put("commitLogOffset", message.getCommitLogOffset());
        map.put("sysFlag", message.getSysFlag());
        map.put("bornTimestamp", message.getBornTimestamp());
        map.put("bornHost", address(message.getBornHost()));
        map.put("storeTimestamp", message.getStoreTimestamp());
        map.put("storeHost", address(message.getStoreHost()));
        map.put("reconsumeTimes", message.getReconsumeTimes());
        map.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        map.put("body", bytes(message.getBody()));
        map.put("topic", message.getTopic());
        map.put("properties", new TreeMap<>(message.getProperties()));
        map.put("offsetMessageId", MessageDecoder.createMessageId(message.getStoreHost(), message.getCommitLogOffset()));
        return map;
    }

    /** The records of a SEND_BATCH_MESSAGE body. */
    static List<Object> batch(byte[] body) throws Exception {
        List<Object> all = new ArrayList<>();
        for (Message message : MessageDecoder.decodeMessages(ByteBuffer.wrap(body))) {
            Map<String, Object> map = new LinkedHashMap<>();
            map.put("flag", message.getFlag());
            map.put("body", bytes(message.getBody()));
            map.put("properties", new TreeMap<>(message.getProperties()));
            all.add(map);
        }
        return all;
    }

    /** Length and CRC-32 of some bytes, and the bytes themselves in base64 while they are few. */
    static Map<String, Object> bytes(byte[] content) {
        byte[] present = content == null ? new byte[0] : content;
        CRC32 crc = new CRC32();
        crc.update(present);
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("length", present.length);
        map.put("crc32", crc.getValue());
        if (present.length <= INLINE_BODY_BYTES) {
            map.put("base64", Base64.getEncoder().encodeToString(present));
        }
        return map;
    }

    /** What fastjson reads in a body, with every map key turned into text (a key that is an object: into its JSON). */
    static Object json(String text) {
        return withTextKeys(JSON.parse(text));
    }

    private static Object withTextKeys(Object value) {
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> copy = new TreeMap<>();
            map.forEach((key, each) -> copy.put(keyText(key), withTextKeys(each)));
            return copy;
        }
        if (value instanceof List<?> list) {
            List<Object> copy = new ArrayList<>();
            list.forEach(each -> copy.add(withTextKeys(each)));
            return copy;
        }
        return value;
    }

    private static String keyText(Object key) {
        return key instanceof Map<?, ?> ? JSON.toJSONString(withTextKeys(key)) : String.valueOf(key);
    }

    private static String address(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }

    static void write(Path path, Object value) throws IOException {
        String text = JSON.toJSONString(
                value,
                SerializerFeature.PrettyFormat,
                SerializerFeature.WriteMapNullValue,
                SerializerFeature.DisableCircularReferenceDetect);
        Files.writeString(path, text.replace("\t", "  ") + "\n");
    }
}
