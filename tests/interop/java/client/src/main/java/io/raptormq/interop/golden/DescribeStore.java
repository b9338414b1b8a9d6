package io.raptormq.interop.golden;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Says what RocketMQ's classes read in a commit log. Arguments: the (cut) commit log file; file to write. */
public final class DescribeStore {
    private DescribeStore() {}

    public static void main(String[] arguments) throws Exception {
        ByteBuffer log = ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0])));
        Map<String, Object> description = new LinkedHashMap<>();
        List<Object> messages = new ArrayList<>(Descriptions.storedMessages(log));
        description.put("messages", messages);
        description.put("end", log.position());
        Descriptions.write(Path.of(arguments[1]), description);
    }
}
