package io.raptormq.interop.mqadmin;

import com.alibaba.fastjson.JSON;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs one mqadmin command after the other: each line of a file is a command, its arguments separated by tabs; each gives one line of standard
 * output, "output " and JSON {command, output}. The output is all that the command printed, errors included.
 */
public final class CommandRunner {
    private CommandRunner() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            List<String> command = Arrays.asList(line.split("\t"));
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            try (PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8)) {
                System.setOut(stream);
                System.setErr(stream);
                MQAdminStartup.main0(command.toArray(new String[0]), null);
            } catch (RuntimeException fault) {
                printed.writeBytes(fault.toString().getBytes(StandardCharsets.UTF_8));
            } finally {
                System.setOut(answers);
                System.setErr(errors);
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("command", command);
            answer.put("output", printed.toString(StandardCharsets.UTF_8));
            answers.println("output " + JSON.toJSONString(answer));
        }
        System.exit(0);
    }
}
