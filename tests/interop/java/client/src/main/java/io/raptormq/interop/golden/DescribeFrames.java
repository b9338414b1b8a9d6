package io.raptormq.interop.golden;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;

/**
 * Says what RemotingCommand.decode reads in each recorded frame.
 *
 * <p>Arguments: file of frames one after another; JSON list of {peer, connection, toServer, offset, length}; file to write, the same list
 * with the decoded values added.
 */
public final class DescribeFrames {
    private final ByteBuffer frames;
    private final Map<String, Integer> requestCodes = new HashMap<>();

    private DescribeFrames(byte[] frames) {
        this.frames = ByteBuffer.wrap(frames);
    }

    public static void main(String[] arguments) throws Exception {
        DescribeFrames program = new DescribeFrames(Files.readAllBytes(Path.of(arguments[0])));
        JSONArray index = JSON.parseArray(Files.readString(Path.of(arguments[1])));
        List<Object> described = new ArrayList<>();
        for (Object entry : index) {
            described.add(program.describe((JSONObject) entry));
        }
        Descriptions.write(Path.of(arguments[2]), described);
    }

    private Map<String, Object> describe(JSONObject entry) throws Exception {
        int offset = entry.getIntValue("offset");
        // RemotingCommand.decode wants what follows the length field.
        ByteBuffer payload = frames.slice(offset + 4, entry.getIntValue("length") - 4);
        int headerLength = payload.getInt(0) & 0xFFFFFF;
        RemotingCommand command = RemotingCommand.decode(payload);
        Map<String, Object> map = new LinkedHashMap<>(new TreeMap<>(entry));
        map.remove("connection"); // only pairs responses with requests
        map.put("headerLength", headerLength);
        map.put("serializeType", command.getSerializeTypeCurrentRPC().name());
        map.put("code", command.getCode());
        map.put("requestCode", requestCode(entry, command));
        map.put("language", command.getLanguage().name());
        map.put("version", command.getVersion());
        map.put("opaque", command.getOpaque());
        map.put("flag", command.getFlag());
        map.put("remark", command.getRemark());
        map.put("extFields", command.getExtFields() == null ? null : new TreeMap<>(command.getExtFields()));
        describeBody(map, command.getBody());
        return map;
    }

    /** A response is paired with the request that went the other way on the same connection with the same opaque. */
    private int requestCode(JSONObject entry, RemotingCommand command) {
        String connection = entry.getString("peer") + "/" + entry.getIntValue("connection");
        boolean fromClient = entry.getBooleanValue("toServer") != command.isResponseType();
        String exchange = connection + "/" + fromClient + "/" + command.getOpaque();
        if (command.isResponseType()) {
            return requestCodes.getOrDefault(exchange, -1);
        }
        requestCodes.put(exchange, command.getCode());
        return command.getCode();
    }

    private static void describeBody(Map<String, Object> map, byte[] body) throws Exception {
        map.put("body", Descriptions.bytes(body));
        if (body == null || body.length == 0) {
            return;
        }
        boolean response = ((int) map.get("flag") & 1) == 1;
        switch ((int) map.get("requestCode")) {
            case RequestCode.SEND_MESSAGE_V2 -> { }
            case RequestCode.SEND_BATCH_MESSAGE -> map.put("batch", Descriptions.batch(body));
            case RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID -> {
                if (response) {
                    map.put("messages", Descriptions.storedMessages(ByteBuffer.wrap(body)));
                }
            }
            default -> describeText(map, new String(body, StandardCharsets.UTF_8));
        }
    }

    private static void describeText(Map<String, Object> map, String text) {
        if (text.startsWith("{") || text.startsWith("[")) {
            map.put("json", Descriptions.json(text));
        }
    }
}
