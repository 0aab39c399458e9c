# anydml's command line: docker build -t anydml . && docker run --rm -v "$PWD:/models" anydml check model.onnx
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /anydml/
COPY anydml /anydml/anydml
RUN pip install --no-cache-dir /anydml && rm -r /anydml \
    && useradd --create-home anydml
USER anydml
WORKDIR /models
ENTRYPOINT ["anydml"]
CMD ["--help"]
